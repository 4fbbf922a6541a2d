"""General infrastructure, independent of tensor cores: process pools, journals, files, the cache, external tools."""
