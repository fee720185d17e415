/** Mistakes in the call of `tierkv simulate`: one line that names the option and says what to write. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endingOf } from '../../../src/cli/process.ts';
import { printed } from './printed.ts';

let folder: string;
beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-simulate-'));
});
afterAll(() => {
  fs.rmSync(folder, { recursive: true });
});

async function failure(args: string): Promise<{ exitCode: number; text: string }> {
  try {
    await printed('--model', 'qwen3-14b', ...args.split(' ').filter((word) => word !== ''));
  } catch (error) {
    return endingOf(error, 'tierkv simulate');
  }
  throw new Error(`${args} did not fail`);
}

describe('a mistake', () => {
  it.each([
    ['--model qwen3-41b', /unknown model|qwen3-14b/],
    ['--hardware H1000', /H100/],
    ['--latency-model rooflin', /--latency-model is "rooflin".*'roofline'/],
    ['--scheduler sfj', /--scheduler is "sfj".*'sjf'/],
    ['--preemption-policy prioritty', /--preemption-policy .*'priority'/],
    ['--eviction lur', /--eviction is "lur".*'lru'/],
    ['--total-kv-blocks -5', /--hbm is "-5", not a size. Write a number of blocks/],
    ['--hbm 0', /--hbm is 0. Set it to an integer from 1/],
    ['--hbm 1KiB', /--hbm is 1KiB, which is 0 blocks of 2.5 MiB/],
    ['--ddr 4Gb', /--ddr is "4Gb", not a size/],
    ['--ddr 4GiB --kv-cpu-blocks 5', /--kv-cpu-blocks excludes --ddr and --nvme/],
    ['--horizon 5parsecs', /--horizon is "5parsecs", not a time. Set --horizon to a time, as 500ms/],
    ['--gpu H100 --hardware H100', /--hardware is another name of --gpu, which is given too. Keep one/],
    ['--pd-transfer-granularity chnk', /--pd-transfer-granularity is "chnk".*'chunk'/],
    ['--pd-transfer-pipelined', /--pd-transfer-pipelined has nothing to send .* Use chunk, block or stream/],
    ['--total-kv-blocks 1.5', /--hbm is "1.5"/],
    ['--block-size-in-tokens 0', /--block-tokens is 0/],
    ['--num-instances 0', /--num-instances is 0/],
    ['--gpu-memory-utilization 2', /--gpu-memory-utilization is 2/],
    ['--kv-cpu-blocks x', /--kv-cpu-blocks is "x", not a number/],
    ['--kv-cpu-blocks 5 --kv-offload-config x.yaml', /--kv-cpu-blocks excludes --kv-offload-config/],
    ['--kv-offload-config missing.yaml', /missing.yaml does not exist/],
    ['--preemption-mode offload', /--preemption-mode is offload, and no tier lies below/],
    ['--alpha-coeffs 1,2,3', /--alpha-coeffs and --beta-coeffs go together/],
    ['--rate 0', /--rate is 0/],
    ['--rate 5 --concurrency 5', /--concurrency excludes --rate/],
    ['--workload chatbott', /--workload is "chatbott".*"chatbot"/],
    ['--slo-ttft critical=fast', /--slo-ttft holds "fast", not a duration/],
    [
      '--workload chatbot --num-requests 0',
      /^tierkv: --num-requests is 0, which means no limit, and without --horizon the workload has no end\. Set it to 1 or more/,
    ],
    ['--metrics-path /no/such/dir/m.json', /\/no\/such\/dir\/m.json cannot be written/],
    ['--horizon -1', /--horizon is -1/],
    ['--timeout 0', /--timeout is 0/],
    ['--routing-parameters minPrefixMatch', /--routing-parameters holds "minPrefixMatch".* as name=value/],
    ['--routing-parameters policy=lor', /--routing-parameters names a policy/],
    [
      '--routing-policy weighted --routing-parameters minPrefixMatch=2',
      /--routing-parameters minPrefixMatch is 2, not a number above 0 and up to 1\. Set --routing-parameters minPrefixMatch to a number above/,
    ],
    [
      '--routing-policy weighted --routing-parameters prefixCacheAfinity=true',
      /--routing-parameters prefixCacheAfinity is not known.*prefixCacheAffinity/,
    ],
    [
      '--routing-policy weighted --routing-parameters constructor=1',
      /--routing-parameters constructor is not known/,
    ],
    ['--routing-policy weighted --routing-scorers __proto__:1', /not known.*__proto__/],
    ['--routing-policy weighted --routing-scorers queue-depth:1,toString:1', /not known.*toString/],
    [
      '--admission-policy concurrency --admission-parameters kind=token',
      /--admission-parameters kind is not known.*tokens/,
    ],
    ['--flow-control --concurrency-kind token', /--concurrency-kind is not known.*tokens/],
    ['--flow-control --max-token-concurrency 0', /--max-token-concurrency is 0/],
    [
      'test/sim/workload/fixtures/specs/mixed-slo.yaml --rate 5',
      /--rate is for a preset, and test\/.* is served as it is/,
    ],
    ['--trace-header x.yaml', /--trace-header has no --trace-data/],
    ['--trace-header missing.yaml --trace-data x.csv', /missing.yaml does not exist/],
    ['x.csv --trace-data y.csv', /--trace-data excludes x.csv/],
    ['--workload-spec x.yaml --trace-data y.csv', /--trace-data excludes --workload-spec/],
    ['examples', /examples holds neither sessions .* nor profiles/],
    ['--session-mode closed', /--session-mode is "closed".*fixed, closed-loop/],
    [
      '--num-instances 2 --prefill-instances 1 --decode-instances 1 --model-autoscaler-interval-us 1000',
      /--model-autoscaler-interval-us asks for an autoscaler .* which role .* replicas: \{min: 1, max: 4\} .* --deployment/,
    ],
    ['--session-mode closed-loop', /--session-mode is closed-loop, which is for recorded traces/],
  ])('%s', async (args, says) => {
    const { exitCode, text } = await failure(args);
    expect(text).toMatch(says);
    expect(text.split('\n')).toHaveLength(1);
    expect(exitCode).toBe(2);
  });

  it('a shared tier with an unknown key, without a rate, too small, or beside billed loads', async () => {
    const file = path.join(folder, 'shared.yaml');
    const good = 'capacity_bytes: 1000000000\nread_gb_per_s: 1\nwrite_gb_per_s: 1\n';
    fs.writeFileSync(file, `${good}delay_ms: 1\n`);
    expect((await failure(`--shared-tier ${file}`)).text).toMatch(/delay_ms.*delay_us/);
    fs.writeFileSync(file, 'capacity_bytes: 1000000000\nread_gb_per_s: 1\n');
    expect((await failure(`--shared-tier ${file}`)).text).toMatch(/write_gb_per_s is missing/);
    fs.writeFileSync(file, good.replace('1000000000', '1000'));
    expect((await failure(`--shared-tier ${file}`)).text).toMatch(/less than a block/);
    fs.writeFileSync(file, good);
    expect((await failure(`--shared-tier ${file} --kv-cpu-blocks 10`)).text).toMatch(/--kv-offload-config/);
    const tiers = path.join(folder, 'tiers.yaml');
    const disk = '{type: fs, device_class: nvme_gen4}';
    fs.writeFileSync(tiers, `kv_offload: {cpu_bytes_to_use: 0, secondary_tiers: [${disk}, ${disk}]}\n`);
    const both = `--shared-tier ${file} --kv-offload-config ${tiers}`;
    expect((await failure(both)).text).toMatch(/takes the place of a tier/);
  });

  it('an offload file with an unknown key, or a tier too small for a block', async () => {
    const file = path.join(folder, 'offload.yaml');
    fs.writeFileSync(file, 'kv_offload:\n  cpu_bytes_to_use: 1000000000\n  evicton_policy: lru\n');
    expect((await failure(`--kv-offload-config ${file}`)).text).toMatch(/evicton_policy.*eviction_policy/);
    fs.writeFileSync(file, 'kv_offload:\n  cpu_bytes_to_use: 1000\n');
    expect((await failure(`--kv-offload-config ${file}`)).text).toMatch(
      /cpu_bytes_to_use is 1000, less than/,
    );
  });
});
