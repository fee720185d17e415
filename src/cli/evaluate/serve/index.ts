/** The evaluation service on stdio and over HTTP. */

export { serveHttp } from './http.ts';
export { serveLines } from './stdio.ts';
