/** A program as JavaScript: faster than walking its tree, with the same results and steps. */

import type { FunctionNode } from '../../syntax/index.ts';
import type { Value } from '../../values/index.ts';
import { surroundings } from '../surroundings.ts';
import type { Thread } from '../thread.ts';
import { Constants, FunctionCode } from './functionCode.ts';

export interface CompiledProgram {
  /** Runs the module on a thread and returns its variables. */
  run(thread: Thread): readonly (Value | undefined)[];
}

export function compileModule(module: FunctionNode): CompiledProgram {
  const constants = new Constants();
  const code = new FunctionCode(module, null, constants).moduleCode();
  const { nodes } = constants;
  return {
    run(thread) {
      const names = surroundings(thread);
      const text = `"use strict";\n${constants.declarations()}\n${code}`;
      const run = new Function('nodes', ...Object.keys(names), text);
      return run(nodes, ...Object.values(names));
    },
  };
}
