/** An OpenAI-compatible API over the engine. */

export { type AppOptions, makeApp } from './app.ts';
export { type ServerOptions, serverOptions, usage } from './options.ts';
export { Serving } from './serving.ts';
