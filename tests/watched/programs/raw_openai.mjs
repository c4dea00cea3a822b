// A loop of its own on the SDK of OpenAI for Node: chat completions.
import OpenAI from 'openai';

const describe = (name, parameter, description) => ({
  type: 'function',
  function: {
    name,
    description,
    parameters: { type: 'object', properties: { [parameter]: { type: 'string' } }, required: [parameter] },
  },
});
const LOOK_UP = describe('look_up', 'place', 'Says what a place is like.');
const ASK_EXPERT = describe('ask_expert', 'question', 'Asks an expert.');
const PROMPT = { role: 'system', content: 'You plan journeys.' };

class Agent {
  constructor(run, { tools = [LOOK_UP, ASK_EXPERT], isStreamed = false } = {}) {
    this.run = run;
    this.tools = tools;
    this.isStreamed = isStreamed;
    this.client = new OpenAI({ defaultHeaders: { 'X-Run': run } });
    this.messages = [];
  }

  async ask() {
    const request = { model: 'gpt-5.5', messages: [PROMPT, ...this.messages], tools: this.tools };
    if (!this.isStreamed) return (await this.client.chat.completions.create(request)).choices[0].message;
    return this.client.chat.completions.stream(request).finalMessage();
  }

  async say(text, afterCalls = () => {}) {
    this.messages.push({ role: 'user', content: text });
    for (let patience = 4; ; ) {
      let message;
      try {
        message = await this.ask();
      } catch (error) {
        if (!--patience) throw error;
        console.log(this.run, 'asks again');
        continue;
      }
      this.messages.push(message);
      if (!message.tool_calls?.length) return message.content;
      this.messages.push(...(await Promise.all(message.tool_calls.map(call => this.runCall(call)))));
      afterCalls(this);
    }
  }

  async runCall(call) {
    const [text] = Object.values(JSON.parse(call.function.arguments));
    const child = () => new Agent(`${this.run}/${text.split(' ')[4]}`, { tools: [LOOK_UP] });
    const content = call.function.name === 'ask_expert' ? await child().say(text) : `${text} is lovely.`;
    return { role: 'tool', tool_call_id: call.id, content };
  }
}

const scenarios = {
  async one() {
    console.log(await new Agent('one').say('[look_up Paris] Shall I go to Paris?'));
  },
  async again() {
    for (const number of [1, 2])
      console.log(await new Agent(`again ${number}`).say('[look_up Paris] Shall I go to Paris?'));
  },
  async turns() {
    const agent = new Agent('turns');
    const texts = ['[look_up Paris + look_up Rome] Where to?', '[look_up Oslo] And Oslo?', 'Thank you.'];
    for (const text of texts) console.log(await agent.say(text));
  },
  async alike() {
    const text = '[look_up Nice] [look_up Bath] Which one?';
    const answers = await Promise.all([0, 1, 2].map(number => new Agent(`alike ${number}`).say(text)));
    console.log(answers.join('\n'));
  },
  async children() {
    const text = '[ask_expert Paris + ask_expert Rome] [ask_expert Oslo] Where to?';
    console.log(await new Agent('children').say(text));
  },
  async busy() {
    console.log(await new Agent('busy').say('(busy 0) (busy 1) [look_up Paris] Is it full?'));
  },
  async streamed() {
    const agent = new Agent('streamed', { isStreamed: true });
    for (const text of ['[look_up Paris] [look_up Rome] Where to?', 'Thank you.'])
      console.log(await agent.say(text));
  },
  async cut() {
    const agent = new Agent('cut', { isStreamed: true });
    console.log(await agent.say('(cut 0) (cut 1) [look_up Paris] Is it far?'));
  },
  async trimmed() {
    const agent = new Agent('trimmed');
    console.log(await agent.say('[look_up Lima] Go to Lima?'));
    const count = agent.messages.length;
    const first = agent.messages[0];
    const trim = () => agent.messages[0] === first && agent.messages.splice(0, count);
    console.log(await agent.say('[look_up Kyiv] [look_up Bonn] Or there?', trim));
  },
};

const names = process.argv.slice(2);
for (const [name, scenario] of Object.entries(scenarios)) {
  if (names.length && !names.includes(name)) continue;
  console.log('--', name);
  await scenario();
}
