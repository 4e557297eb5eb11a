"""llama.cpp's own HTTP server, as the wheel `xllamacpp` carries it: python llama_server.py PORT MODEL.gguf."""

import sys
import time

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[2]
parameters.model_alias = {"bundled"}
parameters.hostnames, parameters.port = ["127.0.0.1"], int(sys.argv[1])
parameters.n_ctx, parameters.n_parallel = 4096, 4
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.warmup = False
# the other side computes at float32: keys and values at float16 move the log-likelihood of an unlikely token by 0.003
parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(parameters)
while True:
    time.sleep(60)
