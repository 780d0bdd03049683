"""What Streamlit runs for every visitor, from top to bottom, at every click."""

from attnviz.dashboard.shell import main

main()
