/** `tierkv doctor FILE...`: which byte of a prompt broke a prefix cache, from recorded requests. */

import { Command } from 'commander';
import { requireWritableTargets, writeResultJson } from '../io/files/results.ts';
import { inFlags, numberWithin } from './flags.ts';
import { notes } from './help.ts';
import { jsonOption } from './optionRows.ts';
import { printText } from './output.ts';
import { checkReport, reportAbout, reportFlags, reportTo } from './reportOption.ts';

const machineFlags = { model: '--model', gpu: '--gpu', tp: '--tp', gpuPrice: '--gpu-price' };

const helpEnd = `
A file has JSON lines of request bodies, or of records with a body and an answer, or is a HAR archive: docs/guide/doctor.md.

  tierkv doctor requests.jsonl
  tierkv doctor browser.har --model qwen/qwen3-14b --gpu H100 --gpu-price 2.5 --report doctor.html
`;

export function doctorCommand(): Command {
  return new Command('doctor')
    .description('Say which byte of a prompt broke a prefix cache, why, and what it cost.')
    .argument('<files...>', 'recorded requests, in the order in which they were sent')
    .option('--model <name>', 'model that served them: with it, what was lost is told in seconds too')
    .option('--gpu <name>', "GPU of the servers (default: the model's own)")
    .option('--tp <count>', "GPUs of one server (default: the model's own)")
    .option('--gpu-price <usd>', 'USD an hour of one GPU: with it, what was lost is told in USD too')
    .addOption(jsonOption())
    .option(reportFlags, reportAbout)
    .addHelpText('after', notes(helpEnd))
    .action(async (files: string[], values: Readonly<Record<string, string | undefined>>) => {
      const { model, gpu, json, report } = values;
      const tp = numberWithin(values, 'tp', '--tp', { min: 1, max: 1024, whole: true });
      const gpuPrice = numberWithin(values, 'gpuPrice', '--gpu-price', { min: 0, max: 1e6 });
      requireWritableTargets(
        { '--json': json, '--report': report },
        Object.fromEntries(files.map((file, i) => [`FILE ${i + 1}`, file])),
      );
      await checkReport(report);
      const { diagnose, machinePrices } = await import('../serve/doctor/doctor.ts');
      const { readRecording } = await import('../serve/doctor/recordedRequests.ts');
      const { doctorReport, doctorText } = await import('../serve/doctor/doctorReport.ts');
      const prices = inFlags(machineFlags, () => machinePrices({ model, gpu, tp, gpuPrice }));
      const diagnosis = diagnose(files.map(readRecording), prices);
      if (json !== undefined) writeResultJson(json, 'doctor', diagnosis);
      if (report !== undefined) await reportTo(report, (command) => doctorReport(diagnosis, command));
      printText(doctorText(diagnosis));
    });
}
