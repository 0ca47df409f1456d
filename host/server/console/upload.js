// Puts the chosen component into the form as base64 with the alphabet of URLs, in which a form sends each character as one byte.
"use strict";

(() => {
  const form = document.getElementById("upload");
  const file = document.getElementById("upload-file");
  const component = document.getElementById("upload-component");
  const name = document.getElementById("upload-name");
  const status = document.getElementById("upload-status");
  if (!form || !file || !component || !name || !status) {
    return;
  }

  file.addEventListener("change", () => {
    component.value = "";
    const chosen = file.files[0];
    if (chosen && name.value === "") {
      name.value = chosen.name.replace(/\.wasm$/, "").replace(/[^A-Za-z0-9_.-]/g, "-").slice(0, 100);
    }
  });

  form.addEventListener("submit", (event) => {
    if (component.value !== "") {
      return;
    }
    event.preventDefault();
    const chosen = file.files[0];
    if (!chosen) {
      status.textContent = "Choose the file of a component.";
      return;
    }
    status.textContent = "The file is read.";
    const reader = new FileReader();
    reader.addEventListener("error", () => {
      status.textContent = "The file cannot be read.";
    });
    reader.addEventListener("load", () => {
      const base64 = String(reader.result).split(",")[1] || "";
      component.value = base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
      if (component.value === "") {
        status.textContent = "The file is empty.";
        return;
      }
      status.textContent = "The component is sent.";
      form.requestSubmit();
    });
    reader.readAsDataURL(chosen);
  });
})();
