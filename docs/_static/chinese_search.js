// Sphinx 9.0 uses this name in Chinese pages and does not define it (sphinx-doc/sphinx issue 14229).
window.ChineseStemmer = function () {
  return new EnglishStemmer();
};
