// A planner of journeys with the AI SDK.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, Output, pruneMessages, streamText, tool } from 'ai';
import { z } from 'zod';

const wire = process.argv[2];
const openai = createOpenAI();
const model =
  wire === 'messages'
    ? createAnthropic()('claude-opus-5')
    : wire === 'chat'
      ? openai.chat('gpt-5.5')
      : openai('gpt-4.1'); // the texts of such a model are sent back by their ids

const lookUp = tool({
  description: 'Says what a place is like.',
  inputSchema: z.object({ place: z.string() }),
  execute: async ({ place }) => `${place} is lovely.`,
});

const askExpert = run =>
  tool({
    description: 'Asks an expert.',
    inputSchema: z.object({ question: z.string() }),
    execute: async ({ question }) => {
      const child = `${run}/${question.split(' ')[4]}`;
      return (await ask(child, [{ role: 'user', content: question }], { tools: { look_up: lookUp } })).text;
    },
  });

const settings = (run, messages, options) => ({
  model,
  instructions: 'You plan journeys.',
  tools: { look_up: lookUp, ask_expert: askExpert(run) },
  headers: { 'X-Run': run },
  stopWhen: isStepCount(10),
  messages,
  ...options,
});
const ask = (run, messages, options) => generateText(settings(run, messages, options));

// One turn: prints the answer, and returns all messages.
async function say(run, text, history = [], options = {}) {
  const messages = [...history, { role: 'user', content: text }];
  const result = await ask(run, messages, options);
  console.log(result.text);
  return [...messages, ...result.responseMessages];
}

async function stream(run, text) {
  let failure;
  const onError = ({ error }) => {
    failure = error;
  };
  const result = streamText(settings(run, [{ role: 'user', content: text }], { onError }));
  let answer = '';
  for await (const piece of result.textStream) answer += piece;
  if (failure) throw failure;
  return answer;
}

const scenarios = {
  async one() {
    await say('one', '[look_up Paris] Shall I go to Paris?');
  },
  async again() {
    for (const number of [1, 2]) await say(`again ${number}`, '[look_up Paris] Shall I go to Paris?');
  },
  async turns() {
    let history = [];
    const texts = ['[look_up Paris + look_up Rome] Where to?', '[look_up Oslo] And Oslo?', 'Thank you.'];
    for (const text of texts) history = await say('turns', text, history);
  },
  async alike() {
    const text = '[look_up Nice] [look_up Bath] Which one?';
    await Promise.all([0, 1, 2].map(number => say(`alike ${number}`, text)));
  },
  async children() {
    await say('children', '[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?');
  },
  async busy() {
    await say('busy', '(busy 0) (busy 1) [look_up Paris] Is it full?');
  },
  async streamed() {
    console.log(await stream('streamed', '[look_up Paris] [look_up Rome] Where to?'));
  },
  async cut() {
    for (let count = 0; count < 3; count++) {
      try {
        console.log(await stream('cut', '(cut 0) (cut 1) [look_up Paris] Is it far?'));
      } catch (error) {
        console.log('cut asks again', error.name);
      }
    }
  },
  // What was called in earlier steps is left out.
  async trimmed() {
    const prepareStep = ({ messages, stepNumber }) =>
      stepNumber < 2 ? {} : { messages: pruneMessages({ messages, toolCalls: 'before-last-3-messages' }) };
    let history = [];
    const texts = ['[look_up Lima] Go to Lima?', '[look_up Kyiv] Or there?', 'Thank you.'];
    for (const text of texts) {
      const kept = pruneMessages({ messages: history, toolCalls: 'before-last-2-messages' });
      history = await say('trimmed', text, kept, { prepareStep });
    }
  },
  async prompted() {
    const prepareStep = ({ stepNumber }) => ({ instructions: `You plan journeys. Step ${stepNumber}.` });
    await say('prompted', '[look_up Metz] [look_up Brno] Go to Metz?', [], { prepareStep });
  },
  async typed() {
    const output = Output.object({ schema: z.object({ go: z.boolean() }) });
    await say('typed', '[look_up Pisa] Go to Pisa?', [], { output });
  },
};
if (wire === 'responses') {
  scenarios.stateful = async () => {
    const first = await ask('stateful', [{ role: 'user', content: '[look_up Gent] Go to Gent?' }]);
    const previousResponseId = first.finalStep.providerMetadata.openai.responseId;
    await say('stateful', 'Or to Lier?', [], { providerOptions: { openai: { previousResponseId } } });
  };
}

const names = process.argv.slice(3);
for (const [name, scenario] of Object.entries(scenarios)) {
  if (names.length && !names.includes(name)) continue;
  console.log('--', name);
  await scenario();
}
