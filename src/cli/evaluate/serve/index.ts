/** The evaluation service on stdio and over HTTP. */

export { serveHttp } from './http.ts';
export { answerOnce, type ServeOptions, serve } from './run.ts';
export { serveLines } from './stdio.ts';
