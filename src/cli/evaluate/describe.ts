/** `tierkv evaluate describe`. */

import { bundleSchema, describePolicies, descriptionText } from '../../evolve/bundle/index.ts';
import { metricDescriptions, metricsText } from '../../evolve/fitness/index.ts';

export function describe(schema: boolean, json: boolean): string {
  if (schema) return `${JSON.stringify(bundleSchema(), null, 2)}\n`;
  if (!json) return `${descriptionText()}\n${metricsText()}`;
  return `${JSON.stringify({ ...describePolicies(), metrics: metricDescriptions }, null, 2)}\n`;
}
