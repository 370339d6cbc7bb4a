"""A browser without a window, by the WebDriver protocol that chromedriver speaks.

References:
    W3C, "WebDriver", 2018.
"""

import base64
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

BROWSERS = ("chromium", "google-chrome", "chrome")
DRIVER = "chromedriver"
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1180,900")
STARTED = re.compile(r"successfully on port (\d+)")


def absent() -> str | None:
    """Returns why no browser is available; None if one is."""
    if not any(map(shutil.which, BROWSERS)):
        return "no chromium here; apt-get install chromium"
    return None if shutil.which(DRIVER) else f"no {DRIVER} here; apt-get install chromium-driver"


class Browser:
    """A session of a browser."""

    def __init__(self, address: str, capabilities: dict[str, Any]):
        self._address = f"{address}/session"
        wanted = {"capabilities": {"alwaysMatch": capabilities}}
        self._address += "/" + self._call("", wanted)["sessionId"]

    def open(self, address: str) -> None:
        """Opens a page, and returns when it has been loaded."""
        self._call("/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns what a script returns in the page."""
        return self._call("/execute/sync", {"script": script, "args": list(arguments)})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Returns what has come into a log since the last call: "browser" is the console."""
        found: list[dict[str, Any]] = self._call("/se/log", {"type": kind})
        return found

    def requests(self) -> list[str]:
        """Returns the addresses that pages have asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def develop(self, command: str, **parameters: Any) -> Any:
        """Runs a command of Chrome's developer tools."""
        return self._call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self) -> bytes:
        """Returns the whole page as a PNG file."""
        return base64.b64decode(self.develop("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def close(self) -> None:
        urllib.request.urlopen(urllib.request.Request(self._address, method="DELETE"), timeout=30).close()

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return json.load(answer)["value"]


@contextlib.contextmanager
def running_browser(folder: pathlib.Path) -> Iterator[Browser]:
    """A browser whose profile lies in a folder."""
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        port = next(match[1] for line in driver.stdout if (match := STARTED.search(line)))
        program = next(filter(None, map(shutil.which, BROWSERS)))
        options = {"args": [*ARGUMENTS, f"--user-data-dir={folder}"], "binary": program}
        logging = {"browser": "ALL", "performance": "ALL"}
        browser = Browser(f"http://127.0.0.1:{port}", {"goog:chromeOptions": options, "goog:loggingPrefs": logging})
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
