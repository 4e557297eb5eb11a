"""Sample to requests to answer, as generators without input or output of their own."""
