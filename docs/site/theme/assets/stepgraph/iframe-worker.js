// A page that is opened from disk may start no worker, and the search runs in one. Here a worker's script runs in a hidden
// frame instead: the frame has names of its own, as a worker has, and both sides hand on messages as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.open(); // keeps a browser from putting an empty page in its place later
      inside.document.write("<body>");
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(address, location.href).href;
      this.ready = new Promise((resolve) => script.addEventListener("load", () => resolve(inside)));
      inside.document.body.append(script);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
