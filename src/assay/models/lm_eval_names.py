"""Lm-eval's names of models that assay has no backend for, each with the way to evaluate such a model."""

from collections.abc import Mapping

SERVED = "and give --model openai --model_args model=NAME,base_url=http://HOST:PORT/v1,tokenizer=DIR"
TEXT_ONLY = "assay sends text only: for the text tasks of such a model give"
ONNX = (
    "assay does not load ONNX files: give --model hf --model_args pretrained=DIR for the original weights, or start a server"
    f" for the files {SERVED}"
)
LLAMA_CPP = (
    "start llama.cpp's server and give --model openai"
    " --model_args model=NAME,base_url=http://HOST:PORT/v1,tokenizer=DIR,likelihoods=llamacpp (base_url ends in /v1 here); a .gguf"
    " file without a server:"
    " --model hf --model_args pretrained=DIR,gguf_file=FILE"
)
SGLANG = (
    "start SGLang's server and give --model openai"
    " --model_args model=DIR,base_url=http://HOST:30000/v1,tokenizer=DIR,likelihoods=sglang (docs/backends/sglang.md)"
)

OUR_WAY: Mapping[str, str] = {
    "anthropic-completions": "Anthropic has ended text completions: give --model anthropic-chat --model_args model=NAME",
    "ggml": LLAMA_CPP,
    "gguf": LLAMA_CPP,
    "habana": f"start vLLM for Gaudi as a server {SERVED}",
    "hf-audiolm-qwen": f"{TEXT_ONLY} --model hf, or start a server {SERVED}",
    "hf-mistral3": f"{TEXT_ONLY} --model vllm --model_args pretrained=DIR, or start a server {SERVED}",
    "hf-multimodal": f"{TEXT_ONLY} --model hf, or start a server {SERVED}",
    "ipex": "give --model hf --model_args pretrained=DIR,dtype=bfloat16 --device cpu",
    "mamba_ssm": "give --model hf with weights in transformers' format: --model_args pretrained=state-spaces/mamba-130m-hf",
    "megatron_lm": f"convert the checkpoint to Hugging Face's format for --model hf or vllm, or start a server {SERVED}",
    "nemo_lm": f"convert the .nemo file to Hugging Face's format for --model hf or vllm, or start a server {SERVED}",
    "neuronx": f"start vLLM for Neuron as a server {SERVED}",
    "onnxruntime": ONNX,
    "onnxruntime-genai": ONNX,
    "openvino": f"start OpenVINO's model server {SERVED}, or give --model hf --device cpu for the original weights",
    "sglang": SGLANG,
    "sglang-generate": SGLANG,
    "steered": "write a backend that adds the steering vectors, and name its file with --plugin (docs/backends.md)",
    "textsynth": "write a backend for its API, a class of 20 lines, and name its file with --plugin (docs/backends.md)",
    "trtllm": f"start trtllm-serve {SERVED}",
    "vllm-vlm": f"{TEXT_ONLY} --model vllm",
    "watsonx_llm": "give --model litellm --model_args model=watsonx/NAME",
    "winml": ONNX,
}
"""By lm-eval's name what to do instead. Its other names are backends of `assay ls models`."""
