// Uses the page as a reader would and records the state, for test_browser.py.
(() => {
  const seen = {};
  const lit = (name) => [...document.querySelectorAll(".explorer .code")].map((pane) => pane.querySelectorAll(`.ln.${name}`).length);
  const source = document.getElementById("source");
  const key = (name) => source.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  seen.panes = document.querySelectorAll(".explorer .pane").length;
  seen.lines = [...document.querySelectorAll(".explorer .lines")].map((pane) => pane.querySelectorAll(".ln").length);
  seen.first = lit("on");
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  seen.none = lit("on");
  const row = [...source.querySelectorAll(".ln")].find((line) => line.textContent.includes("tl.store("));
  row.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
  seen.hovered = lit("hot");
  row.click();
  seen.clicked = lit("on");
  seen.inspected = document.getElementById("inspect").textContent;
  seen.counts = [...document.querySelectorAll(".code [role=tab] sup")].map((sup) => Number(sup.textContent));
  const before = source.getAttribute("aria-activedescendant");
  key("ArrowUp");
  seen.moved = [before, source.getAttribute("aria-activedescendant")];
  const pane = document.querySelector(".explorer .code");
  seen.forms = [...pane.querySelectorAll("[role=tab]")].map((tab) => {
    tab.click();
    return [tab.dataset.key, pane.querySelectorAll(".ln").length, tab.getAttribute("aria-selected")];
  });
  const back = [...pane.querySelectorAll(".ln[data-s]")].pop();
  back.click();
  seen.back = [back.classList.contains("on"), source.querySelectorAll(".ln.on").length];
  seen.pictures = document.querySelectorAll(".picture svg text").length;
  seen.fill = getComputedStyle(document.querySelector(".cell") || document.body).fill;
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const result = document.createElement("pre");
  result.id = "seen";
  result.textContent = JSON.stringify(seen);
  document.body.append(result);
})();
