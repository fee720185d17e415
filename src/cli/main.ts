#!/usr/bin/env node

/**
 * The `tierkv` binary. Whatever happens in a command ends here: results on stdout, one line about an error on
 * stderr, and an exit code: 0 done, 1 a fault (of tierkv, or blocks that failed verification), 2 a mistake in
 * the call or the input.
 */

/**
 * Disk I/Os run as many at once as libuv has threads; four do not keep a disk busy. It counts them when the first is
 * needed, which with Node 22 is before this line: there only the environment sets it.
 */
process.env.UV_THREADPOOL_SIZE ??= '8';

/** Exits once all results are out; an error in writing them is reported first, by stdout's handler. */
async function finish(exitCode: number): Promise<never> {
  await new Promise<void>((flushed) => process.stdout.write('', () => setImmediate(flushed)));
  process.exit(exitCode);
}

async function main(args: readonly string[]): Promise<never> {
  const { nodeIsTooOld } = await import('../nodeVersion.ts');
  const problem = nodeIsTooOld(process.versions.node);
  if (problem !== undefined) {
    console.error(problem);
    return finish(2);
  }
  const { endingOf, inCallersWords, withStack } = await import('./process.ts');
  const { coloured, hasColours } = await import('../io/printing/colours.ts');
  let help = 'tierkv';
  const fail = (error: unknown): never => {
    const ending = endingOf(inCallersWords(error), help);
    const shown = process.env.TIERKV_DEBUG ? withStack(ending, error) : ending;
    if (shown.text !== '') {
      process.stderr.write(`${hasColours(process.stderr) ? coloured(shown.text) : shown.text}\n`);
    }
    process.exit(ending.exitCode); // at once: what failed may be stdout itself
  };
  process.on('uncaughtException', fail);

  // the reader of a pipe went away: end quietly, as `head` expects
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(process.exitCode ?? 0);
    fail(error);
  });
  process.stderr.on('error', () => {});

  try {
    const { makeProgram } = await import('./program.ts');
    const made = await makeProgram(args);
    help = made.help;
    if (args.length === 0) made.program.error('no command');
    await made.program.parseAsync(args, { from: 'user' });
    return await finish(Number(process.exitCode ?? 0));
  } catch (error) {
    if (endingOf(error, help).exitCode === 0) return finish(0); // help that was asked for
    return fail(error);
  }
}

await main(process.argv.slice(2));
