"""Models behind servers: OpenAI, Anthropic, LiteLLM, reward models, and their HTTP client."""
