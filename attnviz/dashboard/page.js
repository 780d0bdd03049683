// Before anything else on the page: where the server is, how much room figures have, and one entry of the browser's
// history a page. Streamlit adds an entry whenever the server writes into the address; what it writes belongs to the page
// that is there already.
window.__streamlit = { BACKEND_BASE_URL: location.origin };
document.cookie = `attnviz-window=${innerWidth}; path=/; SameSite=Strict`;

{
  const push = history.pushState;
  let left = location.href;
  addEventListener("click", () => (left = location.href), true);
  history.pushState = function (state, title, address) {
    if (new URL(address ?? "", location).pathname === location.pathname) return history.replaceState(state, title, address);
    // the page that is left, as it was when the link was clicked: choices of the next one may have come before its path
    history.replaceState(history.state, title, left);
    return push.call(history, state, title, address);
  };
}
