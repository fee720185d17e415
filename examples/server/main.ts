/** `npm run server`: a server with OpenAI's and Anthropic's APIs on tierkv. See docs/guide/serving.md. */

import { TierKVError } from '../../src/index.ts';
import { Serving, serverOptions, usage } from './api/index.ts';

const args = process.argv.slice(2);
const echoMs = 500;
if (args.includes('--help')) {
  console.log(usage);
} else {
  try {
    const options = serverOptions(args, process.env);
    const serving = await Serving.start(options, console.error);
    const stop = async (): Promise<void> => {
      try {
        const saved = await serving.stop();
        console.log(options.state === undefined ? 'Stopped.' : `Stopped; ${saved} blocks are saved.`);
      } catch (error) {
        const isIo = error instanceof TierKVError && error.code === 'TKV_IO';
        const what = isIo ? 'stopped, and not all KV is saved' : 'the stop failed';
        console.error(`tierkv server: ${what}: ${error instanceof Error ? error.message : error}`);
        process.exitCode = 1;
      }
    };
    // before the line that tells scripts the server is up: they may send a signal at once
    let askedMs = Infinity;
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        // npm passes on the Ctrl+C that the terminal sent to this process too: one that comes later is another one
        if (performance.now() - askedMs > echoMs) process.exit(1);
        if (askedMs === Infinity) void stop();
        askedMs = Math.min(askedMs, performance.now());
      });
    }
    const saves = options.state === undefined ? '; without --state its KV goes with it' : ' and saves the KV';
    console.log(`Listening on ${serving.url} (Ctrl+C stops it${saves})`);
    console.log(`Metrics, dashboard and hand-offs, for its operator: ${serving.operatorsUrl}`);
    const { handoffs } = serving;
    if (handoffs !== undefined) {
      const from = handoffs.address === undefined ? '' : `; decode servers fetch KV from ${handoffs.address}`;
      console.log(`Role ${handoffs.role}${from}`);
    }
  } catch (error) {
    const isExpected = error instanceof TierKVError || (error instanceof Error && 'syscall' in error);
    if (!isExpected) throw error;
    console.error(`tierkv server: ${(error as Error).message}`);
    process.exitCode = 2;
  }
}
