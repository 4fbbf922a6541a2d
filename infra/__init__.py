"""Infrastructure that knows nothing of tensor cores: process pools, journals, files, the cache, external tools."""
