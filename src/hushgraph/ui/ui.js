"use strict";
(function () {
  const EVERY = 2000;
  function pill(words, kind) {
    const made = document.createElement("span");
    made.className = "pill " + kind;
    made.textContent = words;
    return made;
  }
  function ask(address) {
    return fetch(address, { credentials: "same-origin" }).then(function (answer) {
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.json();
    });
  }

  // Runs: one check after the other, because each reads and hashes a whole model.
  const waiting = Array.from(document.querySelectorAll("[data-verify]"));
  function next() {
    const link = waiting.shift();
    if (!link) { document.body.dataset.checked = "yes"; return; }
    link.replaceChildren(pill("checking", "plain"));
    ask(link.dataset.verify)
      .then(function (found) { link.replaceChildren(pill(found.words, found.kind)); })
      .catch(function () { link.replaceChildren(pill("look", "plain")); })
      .then(next);
  }
  if (waiting.length) next();

  // Studies: asked again while the page is looked at.
  const list = document.querySelector("[data-studies]");
  function fill(section, found) {
    const part = function (name) { return section.querySelector('[data-part="' + name + '"]'); };
    part("words").textContent = found.words;
    part("left").textContent = found.left;
    part("share").setAttribute("width", String(100 * found.share));
    part("state").replaceChildren(pill(found.state, found.kind));
    const updated = part("updated");
    if (updated) updated.textContent = found.updated;
  }
  function look() {
    if (document.hidden) { setTimeout(look, EVERY); return; }
    ask(list.dataset.studies)
      .then(function (studies) {
        studies.forEach(function (one) {
          const section = list.querySelector('[data-key="' + one.key + '"]');
          if (section) fill(section, one);
        });
        document.body.dataset.live = "yes";
      })
      .catch(function () { document.body.dataset.live = "no"; })
      .then(function () { setTimeout(look, EVERY); });
  }
  if (list && list.querySelector("[data-key]")) look();
})();
