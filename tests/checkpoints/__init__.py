"""Stateful queries whose checkpoints lie on YTsaurus, while drivers, gateways and proxies are killed."""
