/** Metrics as JSON text, in the form that upstream's have: two spaces, and letters of HTML escaped. */

import type { MetricsOutput } from '../../../sim/report/index.ts';

const escapes: Readonly<Record<string, string>> = { '<': '\\u003c', '>': '\\u003e', '&': '\\u0026' };

export function jsonText(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(/[<>&]/g, (letter) => escapes[letter]);
}

/** Upstream's fields first, then ours under `tierkv`. */
export function metricsText(metrics: MetricsOutput, tierkv: object = {}): string {
  return `${jsonText({ ...metrics, tierkv })}\n`;
}
