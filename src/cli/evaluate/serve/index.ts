/** The evaluation service on stdio and over HTTP. */

export { serveHttp } from './http.ts';
export { type ServeOptions, serve } from './run.ts';
export { serveLines } from './stdio.ts';
