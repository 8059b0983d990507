// How the search orders the pages that it finds. Sphinx puts this into _static/language_data.js.
// Its own order is that of titles, because it gives all texts that have the words one score.
"use strict";

// The parts of a page's score. A term of the glossary leads to the page that explains it.
var Scorer = { term: 100, title: 60, section: 30, text: 40, objNameMatch: 0, objPrio: {}, objPrioDefault: 0 };
// Lessons come before what is looked up, and before pages for lecturers.
const LESS = { "course/index": 4, "course/glossary": 6, api: 20, components: 8, exam: 20, own_page: 15 };

const stemsOfTexts = new Map(); // they are asked for with every query
const stemsOf = (text) => {
  if (!stemsOfTexts.has(text)) {
    const words = splitQuery(text.toLowerCase()).filter((word) => !stopwords.has(word));
    stemsOfTexts.set(text, new Set(words.map((word) => new Stemmer().stemWord(word))));
  }
  return stemsOfTexts.get(text);
};

const pagesOf = (found) => (Array.isArray(found) ? found : found === undefined ? [] : [found]);

// The pages that have a word in their text, in a title, or among the words of the glossary for them;
// or a longer word if none has it.
function pagesWith(stem) {
  const { terms, titleterms, indexentries } = Search._index;
  const own = (table, word) => (Object.hasOwn(table, word) ? pagesOf(table[word]) : []);
  const pages = [...own(terms, stem), ...own(titleterms, stem)];
  for (const [entry, places] of Object.entries(indexentries))
    if (stemsOf(entry).has(stem)) pages.push(...places.filter((x) => x[2]).map((x) => x[0]));
  if (!pages.length && stem.length > 2)
    for (const table of [terms, titleterms])
      for (const word of Object.keys(table))
        if (word.includes(stem)) pages.push(...own(table, word));
  return new Set(pages);
}

// The stems of titles and of the words for pages, and of two such words that are written as one.
let written;

function wordsOfTitles() {
  if (written) return written;
  const { alltitles, indexentries } = Search._index;
  const known = new Set();
  const joined = new Map();
  for (const text of [...Object.keys(alltitles), ...Object.keys(indexentries)]) {
    const words = splitQuery(text.toLowerCase());
    const stems = words.map((word) => new Stemmer().stemWord(word));
    stems.forEach((stem, i) => {
      known.add(stem);
      if (i) joined.set(new Stemmer().stemWord(words[i - 1] + words[i]), [stems[i - 1], stem]);
    });
  }
  written = { known, joined };
  return written;
}

// Ways to write the stems of a query. Titles have multi-head for multihead, softmax for soft max, and
// backpropagation, which begins with backprop.
function waysToWrite(query, searchTerms) {
  const { known, joined } = wordsOfTitles();
  const first = new Set();
  for (const term of searchTerms) {
    const longer = term.length > 6 ? [...known].filter((x) => x.startsWith(term)) : [];
    const others = joined.get(term) ?? (longer.length ? longer : [term]);
    for (const stem of known.has(term) ? [term] : others) first.add(stem);
  }
  const ways = [first];
  if ([...searchTerms].every((term) => pagesWith(term).size)) ways.push(searchTerms);
  const words = splitQuery(query.toLowerCase());
  words.slice(1).forEach((word, i) => {
    const pair = [words[i], word];
    const [left, right, both] = [...pair, pair.join("")].map((x) => new Stemmer().stemWord(x));
    if (/^[a-z]+$/.test(both) && known.has(both))
      ways.push(new Set([both, ...[...first].filter((x) => x !== left && x !== right)]));
  });
  return ways;
}

// The pages for these stems, as results of the search.
function pagesFor(stems, excluded) {
  const { docnames, filenames, titles, alltitles, indexentries } = Search._index;
  const having = new Map([...stems].map((stem) => [stem, pagesWith(stem)]));
  // A rare word says more about what is looked for; one that no page has says nothing, and one that
  // no title has says less.
  const { known } = wordsOfTitles();
  const worth = (stem) => {
    const count = having.get(stem).size;
    return count ? Math.log(1 + docnames.length / count) * (known.has(stem) ? 1 : 0.5) : 0;
  };
  const sum = (stems) => [...stems].reduce((all, stem) => all + worth(stem), 0);
  const all = sum(having.keys());
  // From 0 to 1: how much of the query stands in a title, and of the title in the query.
  const alike = (text) => {
    const stems = stemsOf(text);
    const both = [...stems].filter((stem) => having.has(stem));
    return all && both.length ? (sum(both) / all) * Math.sqrt(both.length / stems.size) : 0;
  };

  // A page that has a word often is more about it; OFTEN, in the page of the search, counts them.
  const strength = (page, stem) =>
    (1 + Math.min(3, Math.log2(1 + (OFTEN[docnames[page]]?.[stem] ?? 0)) / 2)) / 4;

  const found = docnames.map(() => ({ term: 0, title: 0, section: 0, text: 0, anchor: "" }));
  const improve = (page, part, value, anchor = "") => {
    if (value <= found[page][part]) return;
    found[page][part] = value;
    if (part === "section") found[page].anchor = anchor;
  };
  for (const [entry, places] of Object.entries(indexentries))
    for (const [page, , isMain] of places) if (isMain) improve(page, "term", alike(entry));
  for (const [title, places] of Object.entries(alltitles))
    for (const [page, id] of places)
      if (titles[page] === title) improve(page, "title", alike(title));
      else improve(page, "section", alike(title), id === null ? "" : `#${id}`);
  for (const [stem, pages] of having)
    for (const page of pages) found[page].text += all && (worth(stem) / all) * strength(page, stem);

  // How much of the query a page has. Half of the best is enough, because a question has words, such
  // as "explained", that its answer has not. Up to five Chinese signs are no question.
  const share = docnames.map((_, page) => sum([...stems].filter((x) => having.get(x).has(page))));
  const pairs = [...stems].filter((stem) => /[\u4e00-\u9fff]{2}/.test(stem));
  const isShort = pairs.length > 0 && pairs.length <= 4;
  const least = Math.max(...share) * (isShort ? 1 : 0.5);
  const results = [];
  found.forEach((parts, page) => {
    const isNamed = Math.max(parts.term, parts.title, parts.section) > (isShort ? 0.45 : 0.25);
    if (excluded.has(page) || !parts.text || (share[page] < least && !isNamed)) return;
    const score = ["term", "title", "section", "text"].reduce((s, x) => s + Scorer[x] * parts[x], 0);
    const name = docnames[page];
    const isSection = parts.section > parts.title && parts.section > 0.5;
    const title = isSection ? sectionTitle(page, parts.anchor) : titles[page];
    const anchor = isSection ? parts.anchor : "";
    results.push([
      name, title, anchor, null, score - (LESS[name] ?? 0), filenames[page], SearchResultKind.text,
    ]);
  });
  return results;
}

Search._performSearch = (query, searchTerms, excludedTerms) => {
  const american = query.replace(/isation/gi, "ization"); // as the pages write
  if (american !== query) searchTerms = stemsOf(american);
  const excluded = new Set([...excludedTerms].flatMap((stem) => [...pagesWith(stem)]));
  const best = new Map();
  for (const stems of waysToWrite(query, searchTerms))
    for (const result of pagesFor(stems, excluded))
      if (!(best.get(result[0])?.[4] >= result[4])) best.set(result[0], result);
  const results = [...best.values()];
  // The name of a function or a class, such as clip_grad_norm_, is in the reference.
  const isOneWord = [...searchTerms].filter((term) => pagesWith(term).size).length === 1;
  for (const word of new Set(query.toLowerCase().trim().split(/\s+/))) {
    const term = word.split(".").at(-1); // F.masked_softmax is tinyattn.functional.masked_softmax
    for (const result of term ? Search.performObjectSearch(term, new Set([term])) : []) {
      const isWhole = result[1].toLowerCase().split(".").at(-1) === term;
      const isCode = /[_.]/.test(word);
      if (!isWhole && !isCode) continue;
      // Words of a question, such as mean, are names of functions too.
      result[4] = isWhole && isCode ? 200 : isWhole && isOneWord ? 15 : 5;
      results.push(result);
    }
  }
  return results.sort(_orderResultsByScoreThenName);
};

function sectionTitle(page, anchor) {
  const { titles, alltitles } = Search._index;
  const title = Object.keys(alltitles).find((text) =>
    alltitles[text].some(([other, id]) => other === page && `#${id}` === anchor),
  );
  return `${titles[page]} > ${title}`;
}

// The piece of a page below a result begins with its text, and not with the links to the other language.
const textOf = Search.htmlToText;
Search.htmlToText = (html, anchor) => textOf(html.replace(/<nav class="language">[^]*?<\/nav>/, ""), anchor);
