(() => {
  "use strict";
  const sections = [...document.querySelectorAll("main > section")];
  const links = [...document.querySelectorAll("nav a")];

  function show() {
    if (!links.length) return;
    const wanted = sections.find((section) => "#" + section.id === location.hash) || sections[0];
    for (const section of sections) section.hidden = section !== wanted;
    for (const link of links) link.setAttribute("aria-current", String(link.hash === "#" + wanted.id));
  }

  function value(row, place) {
    const cell = row.cells[place];
    const text = cell.dataset.value ?? cell.textContent;
    const number = Number(text.replaceAll(",", ""));
    return text.trim() === "" || Number.isNaN(number) ? text : number;
  }

  // What has no value, "-", comes last in either order.
  function compare(first, second, sign) {
    if (first === "-" || second === "-") return (first === "-") - (second === "-");
    const numbers = typeof first === "number" && typeof second === "number";
    return sign * (numbers ? first - second : String(first).localeCompare(String(second)));
  }

  function sort(table, heading) {
    const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const place = heading.cellIndex;
    const rows = [...body.rows].map((row) => [value(row, place), row]);
    rows.sort(([first], [second]) => compare(first, second, sign));
    body.append(...rows.map(([, row]) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, heading));
      heading.append(button);
    }
  }
  const top = () => scrollTo(0, 0);  // a browser would scroll past the tabs, to the page that the address names
  addEventListener("hashchange", () => { show(); top(); });
  if (links.length) addEventListener("load", () => setTimeout(top));
  show();
})();
