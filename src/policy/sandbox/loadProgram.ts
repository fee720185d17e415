/** From the text of a policy to its program, by language. */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { JavaScriptPolicy } from './javascript/javascriptPolicy.ts';
import { PolicyError, type PolicyLanguage, type PolicyProgram, policyLanguages } from './program.ts';
import { StarlarkPolicy } from './starlark/starlarkPolicy.ts';
import { WasmPolicy } from './wasm/wasmPolicy.ts';

/**
 * Checks a policy program and makes it ready to run. Asynchronous because the engine of JavaScript policies is loaded when one is there.
 *
 * @param source text of the program; of a WASM module its bytes in base64
 * @throws PolicyError compile, contract
 * @throws TKV_CONFIG for a language that has no sandbox
 */
export async function loadProgram(language: PolicyLanguage, source: string): Promise<PolicyProgram> {
  checkInputs({ language, source }, { language: is.text(), source: is.text() });
  if (source.trimStart().startsWith('```')) {
    throw new PolicyError('compile', 'the text stands in a Markdown fence. Give the program alone', {
      line: 1,
    });
  }
  switch (language) {
    case 'starlark':
      return new StarlarkPolicy(source);
    case 'wasm':
      return new WasmPolicy(source);
    case 'javascript':
      return await JavaScriptPolicy.load(source);
    default:
      throw configError('language', `is ${language}`, `Use one of ${policyLanguages.join(', ')}.`);
  }
}
