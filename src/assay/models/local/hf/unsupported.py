"""Arguments of lm-eval's `hf` that ours has not, and why."""

IDLE = {
    "logits_cache": "what requests share is always computed once",
    "softmax_dtype": "log-probabilities are always computed in float32",
    "truncation": "--over_length says what becomes of prompts that are too long",
}
"""Those that change nothing here."""

QUANTIZED = "give a checkpoint that says itself how it is quantized, which transformers reads"
MEMORY = "parallelize=true shares a model out by the memory that is there; CUDA_VISIBLE_DEVICES says where"
REFUSED = {
    "delta": "add the difference to the weights once, and save the sum",
    "autogptq": QUANTIZED,
    "gptqmodel": QUANTIZED,
    "load_in_8bit": QUANTIZED,
    "load_in_4bit": QUANTIZED,
    "quantization_config": QUANTIZED,
    "mixed_precision_dtype": "choose the numbers of all computation with dtype=bfloat16 or float16",
    "tp_plan": "parallelize=true shares the layers out over the GPUs, --model vllm has tensor_parallel_size",
    "max_memory_per_gpu": MEMORY,
    "max_cpu_memory": MEMORY,
    "offload_folder": MEMORY,
    "device_map": "write parallelize=true for device_map=auto",
    "torch_dtype": "write dtype=…",
}
"""Those that would change something, each with what to do instead."""
