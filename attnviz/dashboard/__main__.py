"""`python -m attnviz.dashboard [port]`: serve the dashboard, set up by the environment (see `settings`)."""

import os

import streamlit as st

from attnviz.dashboard.server import app_options, config

app = st.App(**app_options())

if __name__ == "__main__":
    port = os.environ.get("ATTNVIZ_PORT")
    app.run(config=config(os.environ.get("ATTNVIZ_HOST"), int(port) if port else None))
