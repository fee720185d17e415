/** `tierkv evaluate describe`. */

import { bundleSchema, describePolicies, descriptionText } from '../../evolve/bundle/index.ts';

export function describe(schema: boolean, json: boolean): string {
  if (schema) return `${JSON.stringify(bundleSchema(), null, 2)}\n`;
  return json ? `${JSON.stringify(describePolicies(), null, 2)}\n` : descriptionText();
}
