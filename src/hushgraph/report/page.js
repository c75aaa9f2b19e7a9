"use strict";
(function () {
  const tip = document.getElementById("tip");
  function show(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, window.innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(8, y - box.height - 12) + "px";
  }
  document.querySelectorAll("[data-tip]").forEach(function (mark) {
    mark.addEventListener("pointermove", function (event) { show(mark.dataset.tip, event.clientX, event.clientY); });
    mark.addEventListener("pointerleave", function () { tip.hidden = true; });
    mark.addEventListener("focus", function () {
      const box = mark.getBoundingClientRect();
      show(mark.dataset.tip, box.left + box.width / 2, box.top);
    });
    mark.addEventListener("blur", function () { tip.hidden = true; });
  });
  document.querySelectorAll("[data-toggle]").forEach(function (button) {
    button.addEventListener("click", function () {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      const drawn = button.closest("figure").querySelector('[data-series="' + button.dataset.toggle + '"]');
      drawn.classList.toggle("off", !on);
    });
  });
  const slider = document.getElementById("delta");
  if (slider) {
    const curve = JSON.parse(document.getElementById("delta-curve").textContent);
    const shown = document.getElementById("delta-words");
    const update = function () {
      const point = curve[Number(slider.value)];
      shown.textContent = "epsilon " + point[1] + " at delta " + point[0];
    };
    slider.addEventListener("input", update);
    update();
  }
})();
