// Sets the chosen theme before the first paint. A classic script, because modules run later.
(() => {
  try {
    const chosen = localStorage.getItem("chatlane.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Without storage the theme of the system is shown.
  }
})();
