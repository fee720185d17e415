/** JavaScript: policies that run in QuickJS, an engine of its own in WebAssembly. */

export { JavaScriptPolicy } from './javascriptPolicy.ts';
