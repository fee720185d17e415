/** The page of settings and the schema of results say what the table of settings says. */

import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, it } from 'vitest';
import { flagOf, paths } from '../../src/sim/description/knobs.ts';
import { pageFile, schemaFile, settingsPage, withSettings } from '../../tools/settings.ts';

const schema = JSON.parse(readFileSync(schemaFile, 'utf8'));

it('the page is as it would be written, and has each setting once', () => {
  const page = readFileSync(pageFile, 'utf8');
  expect(page, 'run: node tools/settings.ts').toBe(settingsPage());
  for (const path of paths) {
    expect(page.split(`| \`${flagOf(path)}\``), path).toHaveLength(2);
    expect(page.split(`| \`${path}\` |`), path).toHaveLength(2);
  }
});

it('the schema is as it would be written, and refuses a setting that the table has not', () => {
  expect(schema, 'run: node tools/settings.ts').toEqual(JSON.parse(JSON.stringify(withSettings(schema))));
  const validate = new Ajv2020({ strict: false }).compile({ $ref: '#/$defs/settings', $defs: schema.$defs });
  expect(validate({ 'engine.maxSequences': 64, seed: '42', 'latency.floor': true })).toBe(true);
  expect(validate({ 'engine.maxSequences': 0 })).toBe(false);
  expect(validate({ 'engine.maxNumSeqs': 64 })).toBe(false);
  expect(validate({ seed: 42 })).toBe(false);
});
