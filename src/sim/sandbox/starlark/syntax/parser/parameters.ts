/** The parameters of a `def` or a lambda. */

import type { Expression, FunctionNode, Parameter } from '../ast.ts';
import type { TokenStream } from './tokenStream.ts';

type Parameters = Pick<FunctionNode, 'parameters' | 'positionalCount' | 'rest' | 'namedRest'>;

/** Reads up to the token `end`, which stays. Defaults are read by `parseDefault`. */
export function parseParameters(
  stream: TokenStream,
  end: string,
  parseDefault: (stream: TokenStream) => Expression,
): Parameters {
  const parameters: Parameter[] = [];
  let positionalCount = -1;
  let rest: string | null = null;
  let namedRest: string | null = null;
  const seen = new Set<string>();
  const name = (): string => {
    const { text } = stream.name('a parameter');
    if (seen.has(text)) stream.fail(`the parameter ${text} stands there twice`);
    seen.add(text);
    if (end === ')' && stream.is(':')) stream.fail(`there are no types of parameters. Write ${text} alone`);
    return text;
  };
  while (!stream.is(end)) {
    if (namedRest !== null) stream.fail('nothing may follow **kwargs');
    if (stream.accept('**')) namedRest = name();
    else if (stream.accept('*')) {
      if (positionalCount >= 0) stream.fail('a second * stands among the parameters');
      positionalCount = parameters.length;
      if (!stream.is(',')) rest = name();
    } else {
      const line = stream.line;
      const parameter = { name: name(), default: stream.accept('=') ? parseDefault(stream) : null, line };
      const last = parameters.at(-1);
      if (positionalCount < 0 && parameter.default === null && last !== undefined && last.default !== null) {
        stream.fail(`the parameter ${parameter.name} has no default, but follows one that has`);
      }
      parameters.push(parameter);
    }
    if (!stream.accept(',')) break;
  }
  if (positionalCount === parameters.length && rest === null) stream.fail('a parameter must follow *');
  return {
    parameters,
    positionalCount: positionalCount < 0 ? parameters.length : positionalCount,
    rest,
    namedRest,
  };
}
