"""The dashboard: `streamlit run app.py` here, or `attnviz dashboard` anywhere."""

import streamlit as st

from attnviz.dashboard.server import app_options, config

app = st.App(**app_options())

if __name__ == "__main__":
    app.run(config=config())
