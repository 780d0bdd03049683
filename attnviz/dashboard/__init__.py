"""The dashboard: the only place that imports streamlit. A thin module per page; what is not layout is pure and tested.

`server` builds the application, `script` is what Streamlit runs for every visitor.
"""
