"""An application for tests of the HTTP server alone."""

from ctrpipe.serving.server.http_protocol import Response


class App:
    """An application that answers with a function.

    Args:
        answer: Of a request.
        is_short: Whether a request may be answered on the loop's thread; by default each.
    """

    def __init__(self, answer, is_short=None):
        self.answer = answer
        self.is_short = is_short or (lambda request: True)

    def refuse(self, status, message):
        return Response(status, message.encode())
