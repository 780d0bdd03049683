# Two commands for everyone: `make dashboard` looks, `make test` checks everything. Both set up what they need.
.PHONY: dashboard test check setup

dashboard test check setup:
	@scripts/$@
