/** Names of the DOM that playwright-core's types ask for. This project has no DOM library: its own code runs in Node. */

interface Node {
  readonly nodeName: string;
}
interface HTMLElement extends Node {
  readonly tagName: string;
}
interface SVGElement extends Node {
  readonly tagName: string;
}
interface HTMLElementTagNameMap {
  readonly div: HTMLElement;
}
