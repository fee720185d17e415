/** The APIs over an engine: OpenAI's, and Anthropic's Messages. */

export { type AppOptions, makeApp } from './app.ts';
export { type ServerOptions, serverOptions, usage } from './options.ts';
export { Serving } from './serving.ts';
