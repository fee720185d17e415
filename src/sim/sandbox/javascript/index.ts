/** JavaScript: policies that run in QuickJS, an engine of its own in WebAssembly. */

export { type Engine, newEngine } from './engine.ts';
export { JavaScriptPolicy } from './javascriptPolicy.ts';
