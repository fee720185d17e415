/** The shape of what `--json` writes, as docs/reference/result.schema.json describes it. */

import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect } from 'vitest';

const text = readFileSync(new URL('../docs/reference/result.schema.json', import.meta.url), 'utf8');
const validate = new Ajv2020({ strict: false, allErrors: true }).compile(JSON.parse(text));

/** What is wrong with the text of a result; nothing where it has the shape. */
export function resultProblems(json: string): string[] {
  if (validate(JSON.parse(json))) return [];
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}

/** The result in the text of `--json`, which has to be of the command and to have the shape. */
export function resultOf<T>(command: string, json: string): T {
  expect(resultProblems(json)).toEqual([]);
  const value = JSON.parse(json);
  expect(value.command).toBe(command);
  return value.result as T;
}
