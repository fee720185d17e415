/**
 * Where a model's chat templates stand, by the rules of transformers: `chat_template.jinja` goes before
 * `chat_template.json`, and that before `chat_template` of `tokenizer_config.json`. Any of these may be one
 * template or several with names; `additional_chat_templates/NAME.jinja` adds named ones.
 */

import fs from 'node:fs';
import nodePath from 'node:path';
import { checkpointError, jsonBounds, readBounded, readJsonObject } from '../checkpoint/index.ts';

export type ChatTemplates = string | Readonly<Record<string, string>>;

const templateBytesMax = 2 ** 20;
const remedy = 'Fetch the model again.';

/** @returns one template, several by name, or undefined where the model has none */
export function chatTemplatesOf(directory: string, configured: unknown): ChatTemplates | undefined {
  const within = (...names: string[]): string => nodePath.join(directory, ...names);
  const text = (path: string): string => {
    const bytes = readBounded(path, templateBytesMax, remedy);
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    } catch {
      throw checkpointError(path, 'is not UTF-8', remedy, 'chat_template');
    }
  };
  const named: Record<string, string> = { ...byName(configured, within('tokenizer_config.json')) };
  const json = within('chat_template.json');
  if (fs.existsSync(json)) {
    Object.assign(named, byName(readJsonObject(json, jsonBounds.config, remedy).chat_template, json));
  }
  if (fs.existsSync(within('chat_template.jinja'))) named.default = text(within('chat_template.jinja'));
  const folder = within('additional_chat_templates');
  if (fs.existsSync(folder)) {
    for (const name of fs.readdirSync(folder).sort()) {
      if (name.endsWith('.jinja')) named[name.slice(0, -'.jinja'.length)] = text(nodePath.join(folder, name));
    }
  }
  const names = Object.keys(named);
  if (names.length === 0) return undefined;
  return names.length === 1 && named.default !== undefined ? named.default : named;
}

/** A template, a list of `{ name, template }`, or an object of templates, as an object of templates. */
export function byName(value: unknown, path: string): Record<string, string> {
  if (value === undefined || value === null) return {};
  if (typeof value === 'string') return { default: value };
  const wrong = (what: string): Error =>
    checkpointError(
      path,
      `chat_template ${what}`,
      'It must be a template, or a list of names and templates.',
      'chat_template',
    );
  if (typeof value !== 'object') throw wrong(`is ${JSON.stringify(value)}`);
  const entries: [unknown, unknown][] = Array.isArray(value)
    ? value.map((each) => [each?.name, each?.template])
    : Object.entries(value);
  const named: Record<string, string> = Object.create(null);
  for (const [name, template] of entries) {
    if (typeof name !== 'string' || typeof template !== 'string') {
      throw wrong(`has an entry without a name or without a template`);
    }
    named[name] = template;
  }
  return named;
}
