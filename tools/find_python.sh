#!/bin/sh
# Prints the path of the newest Python on this machine that supports the whole pipeline: 3.11, 3.12 or 3.13. TFX's newer
# wheels, including all wheels for 3.12 and 3.13, need glibc 2.39 or newer. If no Python fits and uv is installed, uv
# installs one. Tests override the glibc version with FIND_PYTHON_GLIBC.

glibc=${FIND_PYTHON_GLIBC:-$(getconf GNU_LIBC_VERSION 2> /dev/null | sed 's/^glibc //')}
minor=${glibc#*.}
case ${glibc%%.*}:$minor in
    2:[0-9]*) if [ "${minor%%.*}" -ge 39 ]; then fitting="3.13 3.12 3.11"; else fitting="3.11"; fi ;;
    *)        fitting="3.13 3.12 3.11" ;;
esac

# Checks the version, and that the Python can create environments: Debian packages ensurepip separately.
fits='import ensurepip, sys, venv; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])'
for version in $fitting; do
    for python in "python$version" python3; do
        path=$(command -v "$python") && "$path" -c "$fits" "$version" 2> /dev/null && echo "$path" && exit 0
    done
done
if command -v uv > /dev/null; then
    for version in $fitting; do
        uv python find --quiet --managed-python --no-project "$version" 2> /dev/null && exit 0
    done
    for version in $fitting; do
        echo "No Python that fits is here; uv brings $version ..." >&2
        uv python install --quiet "$version" >&2 && uv python find --managed-python --no-project "$version" && exit 0
    done
fi
for python in python3.13 python3.12 python3.11 python3; do
    if command -v "$python" > /dev/null && "$python" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)))' 2> /dev/null; then
        found="; $python is here, but $("$python" -c 'import ensurepip, venv' 2> /dev/null && echo "needs glibc 2.39" || echo "lacks the module ensurepip (apt install python3-venv)")"
        break
    fi
done
echo "ctrpipe needs Python $(echo "$fitting" | sed 's/ /, /g') on this system (glibc ${glibc:-unknown})${found:-}; install one, or uv, or set PYTHON=/path/to/python" >&2
exit 2
