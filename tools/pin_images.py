"""Names the images of kubeflow/ and serving/deploy/ by their digests: a tag can be moved, a digest cannot.

    python tools/pin_images.py --check    # prints the images that have none; exit code 1 if there are any
    python tools/pin_images.py            # asks the registries and writes them

It asks with `docker buildx imagetools inspect`, so it needs docker and a network. A build of our own, of the example
registry, has a digest once it is pushed: it is named in the run's configuration.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("kubeflow", "serving/deploy")
_OWN = "registry.example/"
# `image: NAME`, `FROM NAME` and `ARG BASE=NAME`, but no variable and no stage of the same file.
_NAMES = re.compile(
    r"^(?:\s*(?:- )?image:\s*|ARG [A-Z]+=|FROM )(?P<image>[a-z0-9][a-z0-9./_-]*:[\w.-]+(?:@sha256:[0-9a-f]{64})?)", re.M
)


def files(root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files that may name an image."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(path for path in paths if path.suffix in (".yaml", ".yml") or path.name == "Dockerfile")


def unpinned(root: pathlib.Path) -> list[str]:
    """Returns the images without a digest, in the order of their names."""
    images = {match["image"] for path in files(root) for match in _NAMES.finditer(path.read_text())}
    return sorted(image for image in images if "@" not in image and not image.startswith(_OWN))


def digest(image: str) -> str:
    """Returns the digest of an image, as its registry has it now."""
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", printed):
        raise SystemExit(f"{image}: {' '.join(command)} printed no digest: {printed[:200]}")
    return printed


def pin(root: pathlib.Path) -> None:
    """Writes the digest behind each tag that has none."""
    for image in unpinned(root):
        pinned = f"{image}@{digest(image)}"
        print(pinned)
        name = re.compile(re.escape(image) + r"(?![\w.@-])")
        for path in files(root):
            text = path.read_text()
            replaced = _NAMES.sub(lambda match, name=name, pinned=pinned: name.sub(pinned, match[0]), text)
            if replaced != text:
                path.write_text(replaced)


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    if not sys.argv[1:]:
        pin(ROOT)
    left = unpinned(ROOT)
    print("\n".join(left) or "all images have digests")
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
