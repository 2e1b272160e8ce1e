// The field above the index of the codes hides the rows that lack one of its words, and the headings without rows.
const field = document.querySelector("input.filter");
if (field) {
  field.hidden = false;
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of document.querySelectorAll(".md-content table")) {
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
        shown += !row.hidden;
      }
      const block = table.closest(".md-typeset__scrollwrap") ?? table;
      block.hidden = block.previousElementSibling.hidden = shown === 0;
    }
  });
}
