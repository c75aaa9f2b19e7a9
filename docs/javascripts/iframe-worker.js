// Search runs in a worker, which browsers refuse to pages opened from a folder (file:). There, a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>
        const toParent = window.parent.postMessage.bind(window.parent);
        window.postMessage = (message) => toParent({ worker: message }, "*");
        window.importScripts = (...urls) => { for (const one of urls) document.write('<script src="' + one + '"><\\/script>'); };
      <\/script><script src="${url}"><\/script>`;
      frame.onload = () => {
        this.frame = frame;
        for (const message of this.waiting) this.postMessage(message);
      };
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow || !event.data || !("worker" in event.data)) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data.worker }));
      });
      document.body.append(frame);
    }
    postMessage(message) {
      if (!this.frame) this.waiting.push(message);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }));
    }
    terminate() {
      if (this.frame) this.frame.remove();
    }
  };
}
