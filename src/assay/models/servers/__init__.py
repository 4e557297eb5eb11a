"""Models behind servers: OpenAI, Anthropic, LiteLLM, reward models; the HTTP client they share."""
