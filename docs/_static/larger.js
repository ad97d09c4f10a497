// Every figure opens by itself, as large as it is.
addEventListener("DOMContentLoaded", () => {
  for (const image of document.querySelectorAll(".bd-article img")) {
    if (image.closest("a")) continue;
    const link = document.createElement("a");
    link.className = "larger";
    link.href = image.src;
    image.replaceWith(link);
    link.append(image);
  }
});
